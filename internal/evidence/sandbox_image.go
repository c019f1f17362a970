package evidence

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// sandboxImage asks the runtime whether it has the image from which it makes sandboxes. Where the image is gone and cannot
// be pulled, each start fails before anything of it shows in a list or in a directory.
//
// The newest sandbox names the image, if the runtime's process has made it: an older one may be of an earlier
// configuration, whose image nothing needs any more.
type sandboxImage struct {
	client  *cri.Client
	process func() *facts.Process
	asked   string  // the id of the last sandbox that was asked for
	runtime proc.ID // which has made a sandbox from the image
	last    facts.SandboxImage
}

// newSandboxImage returns its source. It makes one or two calls a minute in the steady state.
func newSandboxImage(i *sandboxImage) *Watch[facts.SandboxImage] {
	return NewWatch(Spec[facts.SandboxImage]{
		Name:    "sandbox_image",
		Every:   20,
		Calm:    60,
		Timeout: 5 * time.Second,
		Gather:  i.gather,
		Store:   func(e *facts.Evidence, v *facts.SandboxImage) { e.SandboxImage = v },
	})
}

func (i *sandboxImage) gather(ctx context.Context) (*facts.SandboxImage, error) {
	sandboxes, _ := i.client.LastLists()
	process := i.process()
	if len(sandboxes) == 0 || process == nil {
		return nil, ErrNoData
	}
	err := i.findName(ctx, sandboxes, process)
	if err != nil {
		return i.unanswered()
	}
	// A restart of the runtime does not bring back an image.
	isCurrent := i.runtime == idOf(process) || !i.last.AbsentSince.IsZero()
	if i.last.Name == "" || !isCurrent {
		return nil, ErrNoData
	}
	isThere, err := i.client.HasImage(ctx, i.last.Name)
	if err != nil {
		return i.unanswered()
	}
	i.last.At = time.Now()
	switch {
	case isThere:
		i.last.AbsentSince = time.Time{}
	case i.last.AbsentSince.IsZero():
		i.last.AbsentSince = i.last.At
	}
	sample := i.last
	return &sample, nil
}

// findName asks for the image of the newest sandbox, once, if the process has made it.
func (i *sandboxImage) findName(ctx context.Context, sandboxes []*cri.Entry, process *facts.Process) error {
	newest := slices.MaxFunc(sandboxes, func(a, b *cri.Entry) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	isItsOwn := !process.Start.IsZero() && time.Unix(0, newest.CreatedAt).After(process.Start)
	if !isItsOwn || newest.ID == i.asked {
		return nil
	}
	name, err := i.client.SandboxImage(ctx, newest)
	if err != nil {
		return err
	}
	i.asked = newest.ID
	if name == "" {
		return nil
	}
	i.runtime = idOf(process)
	if name != i.last.Name {
		i.last = facts.SandboxImage{Name: name}
	}
	return nil
}

// idOf returns the identity of a sampled process.
func idOf(p *facts.Process) proc.ID { return proc.ID{PID: p.PID, Start: p.StartTicks} }

// unanswered returns the last sample where the image was absent: that the runtime does not answer ends nothing. Other
// sources show why it does not.
func (i *sandboxImage) unanswered() (*facts.SandboxImage, error) {
	if i.last.AbsentSince.IsZero() {
		return nil, ErrNoData
	}
	sample := i.last
	return &sample, nil
}
