"""What every answer is made of, whether a wire reads it or a dialect: numbers, text in pieces, arguments."""
