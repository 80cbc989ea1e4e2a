// Package jvm reads HotSpot's own data: which code of its code cache contains an address, how to
// step from one of its frames to the caller, the methods and lines of the frame, and the names,
// states and monitors of Java threads.
//
// The offsets of HotSpot's structures come from the tables in which libjvm.so describes itself
// (gHotSpotVMStructs and related tables, made for the serviceability agent:
// src/hotspot/share/runtime/vmStructs.cpp). The few offsets outside of them (slots of interpreted
// frames, registers saved by the call stub) come from the tested versions: 17, 21 and 25 on amd64.
// Another version is a *VersionError.
//
// stepper.go and carrier.go are HotSpot's part in walks (unwind.Stepper), and language.go is the row in the
// list of languages.
//
// The package uses only bytes and memory: an io.ReaderAt whose offsets are the target's addresses,
// and the words of a copied stack. All of it is untrusted: every length and loop has a bound, and
// implausible data is an error. A Runtime may be used by several goroutines at once.
package jvm
