package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plegd/plegd/internal/bounded"
)

const maxSocketPath = 107 // of sun_path without its terminating zero, unix(7)

// usualSockets are the places where runtimes listen, in the order in which they
// are tried: containerd, CRI-O, cri-dockerd, k3s and RKE2, k0s, microk8s.
var usualSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock", k3sEndpoint,
	"/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock",
}

// ParseEndpoint returns the socket's path of an endpoint: an absolute path or a
// unix:// URL. The error names the value and the allowed ones.
func ParseEndpoint(endpoint string) (string, error) {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%q: want an absolute path of a socket on this node, as in /run/NAME.sock or "+
			"unix:///run/NAME.sock", endpoint)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("%q: want a path of at most %d bytes, the longest that a unix socket can have; "+
			"this one has %d", endpoint, maxSocketPath, len(path))
	}
	return path, nil
}

// sockets looks at sockets' files, whose file system may hang. The zero value is ready for use.
type sockets struct {
	slot bounded.Slot[bool]
}

// equal reports whether two paths lead to one socket, as /var/run and /run do.
func (s *sockets) equal(ctx context.Context, first, second string) bool {
	equal, err := s.slot.Do(ctx, socketTimeout, func(context.Context) (bool, error) {
		a, err := os.Stat(first)
		if err != nil {
			return false, err
		}
		b, err := os.Stat(second)
		return err == nil && os.SameFile(a, b), err
	})
	return err == nil && equal
}

// exists reports whether there is a socket at a path.
func (s *sockets) exists(ctx context.Context, path string) bool {
	found, err := s.slot.Do(ctx, socketTimeout, func(context.Context) (bool, error) {
		info, err := os.Stat(path)
		return err == nil && info.Mode()&os.ModeSocket != 0, err
	})
	return err == nil && found
}
