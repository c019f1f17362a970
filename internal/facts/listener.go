package facts

// Name says which process listens at the path.
func (l *Listener) Name() string {
	if l.PID == 0 {
		return "a process in another pid namespace"
	}
	return ProcessName(l.PID, l.Comm, l.Command, l.Unit)
}
