package target

// Alive reports whether the process still exists and is not a zombie. A process whose first
// thread ended while others continue is alive.
func (p *Process) Alive() bool {
	// While another thread execs, it takes the first one's number, and a reading that began before that finds the old first
	// thread dead (de_thread of fs/exec.c). The next one finds the new one.
	for range 8 { // each may meet another exec
		if p.alive() {
			return true
		}
	}
	return false
}

func (p *Process) alive() bool {
	// The file is open, so a lack of descriptors does not make a process seem gone.
	var buf [1024]byte
	b, err := pread(p.stat, buf[:])
	if err != nil {
		return false
	}
	st, err := ParseStat(b)
	if err != nil || st.State == 'X' {
		return false
	}
	return st.State != 'Z' || st.Threads > 1
}
