// Of what tests precompile; a library needs a source.
