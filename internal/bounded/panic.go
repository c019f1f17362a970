package bounded

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// PanicError is a panic that was recovered.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked, as runtime/debug.Stack returns it
}

// Error returns the panic's value in words, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// panicReport receives every recovered panic; nil for nobody.
var panicReport atomic.Pointer[func(*PanicError)]

// ReportPanics sets the function that receives every panic that this package recovers, in
// the goroutine that panicked. It must not block. nil removes it.
func ReportPanics(report func(*PanicError)) {
	if report == nil {
		panicReport.Store(nil)
		return
	}
	panicReport.Store(&report)
}

// Recovered runs f. It reports a panic in f and returns it as a *PanicError.
func Recovered(f func() error) (err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		recovered := &PanicError{Value: value, Stack: debug.Stack()}
		if report := panicReport.Load(); report != nil {
			(*report)(recovered)
		}
		err = recovered
	}()
	return f()
}
