from benchmarks import imports
print(imports.measure())
