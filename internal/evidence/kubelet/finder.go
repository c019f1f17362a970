package kubelet

import (
	"cmp"
	"context"
	"errors"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// Found is where the runtime's socket is.
type Found struct {
	facts.Endpoint
	// Certain is true where the kubelet or a configuration named it. Serves is true where
	// it is a usual place that serves runtime.v1: the kubelet may name another one.
	Certain, Serves bool
}

// Finder finds the runtime's socket when nobody named it.
type Finder struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// Root is put before every other path; "" outside tests.
	Root string
	// Serves reports whether a socket serves runtime.v1; nil: usual places are not tried.
	Serves func(ctx context.Context, path string) bool

	kubelet Process
}

// Find looks where the kubelet looks: at its process's arguments and configuration, then,
// with Serves, at the usual places. Where the kubelet's arguments cannot be read in time, the
// rest is only a guess.
func (f *Finder) Find(ctx context.Context) Found {
	if f.kubelet.Table == nil {
		f.kubelet = Process{ProcFS: f.ProcFS, Table: proc.NewTable(f.ProcFS)}
		f.kubelet.settings = settingsReader{procfs: f.ProcFS, root: f.Root}
	}
	found := f.named(ctx)
	if found.Path == "" && f.Serves != nil {
		f.usual(ctx, &found)
	}
	return found
}

// named returns the socket that the kubelet names or, without one, its usual configuration.
func (f *Finder) named(ctx context.Context) Found {
	var found Found
	set, certain := f.read(ctx, &found)
	if set.Problem != "" {
		found.Searched = append(found.Searched, set.Problem)
	}
	if set.Endpoint == "" {
		return found
	}
	source := set.From[facts.SettingEndpoint]
	path, err := ParseEndpoint(set.Endpoint)
	switch {
	case err == nil:
		return Found{Endpoint: facts.Endpoint{Path: path, Source: source}, Certain: certain}
	case source != fromArguments: // the value is a part of a file
		err = errEndpoint
	}
	found.Searched = append(found.Searched, source+": "+err.Error())
	return found
}

var errEndpoint = errors.New("containerRuntimeEndpoint is not the path of a unix socket")

// read reads the settings of the node's kubelet, or without one the usual configuration file.
// certain is false where the kubelet's arguments cannot be read in time.
func (f *Finder) read(ctx context.Context, found *Found) (set settings, certain bool) {
	k := &f.kubelet
	proved, doubt, err := k.find(ctx, 1, 0)
	doubt = cmp.Or(err, doubt)
	if len(proved) == 0 {
		if doubt != nil {
			found.Searched = append(found.Searched, doubt.Error())
		}
		return k.settings.read(ctx, 0, "", nil), true
	}
	named := k.read(ctx, proved[0])
	if named == nil {
		found.Searched = append(found.Searched, "the arguments of the kubelet's process: not readable in time")
		return k.settings.read(ctx, 0, "", nil), false
	}
	return *named, true
}

// SameSocket reports whether two paths lead to one socket, as /var/run and /run do.
func (f *Finder) SameSocket(ctx context.Context, first, second string) bool {
	return first == second || first != "" && second != "" && f.kubelet.sockets.equal(ctx, f.Root+first, f.Root+second)
}

// usual looks for a socket at the usual places.
func (f *Finder) usual(ctx context.Context, found *Found) {
	for _, usual := range usualSockets {
		path := f.Root + usual
		switch {
		case !f.kubelet.sockets.exists(ctx, path):
			found.Searched = append(found.Searched, usual)
		case f.Serves(ctx, path):
			const source = "the first usual place that serves runtime.v1"
			*found = Found{Endpoint: facts.Endpoint{Path: path, Source: source}, Serves: true}
			return
		case found.Path == "":
			found.Path = path
			found.Source = "the first usual place where there is a socket"
		}
	}
}
