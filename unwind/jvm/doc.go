// Package jvm reads HotSpot's own data: which code of its code cache an address lies
// in, how to step from a frame of it to the caller, which methods and lines that is,
// which threads there are, what they are called and which monitors they want.
//
// It takes the offsets of HotSpot's structures from the tables that libjvm.so
// describes itself with (gHotSpotVMStructs and its kin, made for the serviceability
// agent: src/hotspot/share/runtime/vmStructs.cpp), and the few that are not in them
// (slots of interpreted frames, registers saved by the call stub) from the versions
// that were tried: 17, 21 and 25 on amd64. Another version is a *VersionError.
//
// It sees bytes and memory alone: an io.ReaderAt whose offsets are the target's
// addresses, and the words of a stack that was copied. All of it is untrusted: every
// length and loop has a bound, and what does not fit is an error. A Runtime may be
// used by several goroutines at once.
package jvm
