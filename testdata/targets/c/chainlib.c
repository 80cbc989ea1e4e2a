// A library that the C chain loads in mid-run: two functions of the chain,
// which call back into the program.
#include "chain.h"

CHAIN_FUNCTION(chainlib_iota, CHAIN_IOTA, )
CHAIN_FUNCTION(chainlib_kappa, CHAIN_KAPPA, CHAIN_ROOM(char, 300))
