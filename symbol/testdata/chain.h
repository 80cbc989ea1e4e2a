extern volatile int sink;

static inline __attribute__((always_inline)) void in_header(int n)
{
	sink = n ^ 0x55;
}
