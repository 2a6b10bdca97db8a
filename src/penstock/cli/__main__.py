from penstock.cli import main

main()
