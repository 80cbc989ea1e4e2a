package target

// sleepsHere is Sleeps for calls that only this machine has.
func sleepsHere(int32) bool { return false }
