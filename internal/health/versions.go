package health

import (
	"time"
)

// statusWillFail reports whether the next Status fails for want of a file descriptor.
func (w *view) statusWillFail() bool {
	return w.process.FDsExhausted() && w.f.Runtime.StatusNeedsFile()
}

// statusFailsForDescriptors reports whether Status failed for want of a descriptor, and was not answered since.
func (w *view) statusFailsForDescriptors() bool {
	exhausted, failed := w.process.ExhaustedAt, w.f.Calls[opStatus].LastFailed
	return !exhausted.IsZero() && w.f.Status.LastErr != nil && w.f.Runtime.StatusNeedsFile() &&
		w.age(exhausted) <= acceptsAgain && failed.Sub(exhausted) <= time.Second
}
