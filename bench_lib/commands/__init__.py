"""One file a group of commands of `cuda-gains`: parse, call one function of the library, print."""
