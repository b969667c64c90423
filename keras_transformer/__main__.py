"""`python -m keras_transformer PROGRAM ...`: see `cli/programs.py`."""

from keras_transformer.cli.programs import main

if __name__ == "__main__":
    main()
