package trace

// NotSampled is the function that represents CPU time of threads without a sample on a CPU.
const NotSampled = "(not sampled)"
