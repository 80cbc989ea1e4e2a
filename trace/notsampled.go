package trace

// NotSampled is the function that represents CPU time of threads that no sample found on a CPU.
const NotSampled = "(not sampled)"
