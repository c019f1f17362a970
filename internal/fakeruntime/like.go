package fakeruntime

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Like names the runtime whose behaviour the fake one takes on where runtimes
// differ: its name and version, its event stream, and which of the newer calls
// it has.
type Like string

// What a runtime can be like. The faults of any of them are for failpoints.
const (
	// LikeNone is a runtime with every call. Its event stream hands each event
	// to each subscriber out of a buffer without limit, so that one that does
	// not read holds up nobody, and nothing is kept while nobody listens.
	LikeNone Like = ""
	// LikeContainerd16 has no event stream and no RuntimeConfig: Unimplemented.
	LikeContainerd16 Like = "containerd-1.6"
	// LikeContainerd17 has no RuntimeConfig.
	LikeContainerd17 Like = "containerd-1.7"
	// LikeContainerd2 hands each event to each subscriber, to the first one also
	// what came up to five minutes before it. One that does not read stops all
	// others, and every pod's start and stop: see Model.HeldUp.
	LikeContainerd2 Like = "containerd-2"
	// LikeCRIO has cmux in front of its server (see SpeakSecond), and its event
	// stream turned off, which is its default: the stream ends at once with EOF.
	LikeCRIO Like = "cri-o"
)

// Likes lists what a runtime can be like, LikeNone left out.
func Likes() []Like {
	return []Like{LikeContainerd16, LikeContainerd17, LikeContainerd2, LikeCRIO}
}

// Validate says what is allowed where a name is none of Likes.
func (l Like) Validate() error {
	if l == LikeNone || slices.Contains(Likes(), l) {
		return nil
	}
	var names []string
	for _, known := range Likes() {
		names = append(names, string(known))
	}
	return fmt.Errorf("%q: want one of %s, or nothing", clip(string(l)), strings.Join(names, ", "))
}

// version is what Version says.
func (l Like) version() (name, version string) {
	switch l {
	case LikeContainerd16:
		return "containerd", "1.6.20"
	case LikeContainerd17:
		return "containerd", "v1.7.24"
	case LikeContainerd2:
		return "containerd", "v2.4.2"
	case LikeCRIO:
		return "cri-o", "1.37.0"
	}
	return "simulated", "1.0.0"
}

// lacks reports whether the runtime does not know a call. gRPC then answers
// Unimplemented, to a streaming call at the first Recv.
func (l Like) lacks(rpc string) error {
	missing := false
	switch rpc {
	case "GetContainerEvents":
		missing = l == LikeContainerd16
	case "RuntimeConfig":
		missing = l == LikeContainerd16 || l == LikeContainerd17
	}
	if !missing {
		return nil
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s for service runtime.v1.RuntimeService", rpc)
}

// Become makes the runtime like another one, as an upgrade behind the same
// socket does: its version, its calls and its event stream. Event streams that
// are open end with EOF, and what was kept for others is forgotten. It panics
// where Validate fails.
func (m *Model) Become(l Like) {
	if err := l.Validate(); err != nil {
		panic("fakeruntime: Become: " + err.Error())
	}
	m.SetVersion(l.version())
	m.events.become(l)
}
