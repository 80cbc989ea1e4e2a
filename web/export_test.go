package web

// Made is how many frames were put together, for one client or several.
func (s *Server) Made() int64 { return s.made.Load() }
