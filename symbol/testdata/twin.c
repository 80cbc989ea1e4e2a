// A second program with the declarations of chain.c: dwz moves what they share.
#include "chain.c"
int other(int n) { outer(n); return n; }
