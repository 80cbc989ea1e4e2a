// Package heap is the folder of heaps: dumps of Java heaps as bytes (heap/hprof), their objects as a graph
// (heap/graph), what of it is a leak (heap/leak), and the heaps of living processes by a forked copy
// (heap/snapshot with heap/hotspot and heap/python). Only heap/snapshot sees a process. Threads, samples and
// recordings are left to the other packages.
package heap
