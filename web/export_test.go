package web

// Made returns how many frames were built, for one client or several.
func (s *Server) Made() int64 { return s.made.Load() }
