package stacks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	rpcHandler    = regexp.MustCompile(`\._(\w+?)_(\w+)_Handler(?:\.|$)`)
	dockerHandler = regexp.MustCompile(`router/\w+\.\(\*\w+\)\.((?:get|post|delete|put|head)\w+)`)
	// authorization is dockerd's question to an authorization plugin, before the handler of the request.
	authorization = regexp.MustCompile(`pkg/authorization\.\(\*authorizationPlugin\)\.(AuthZRe\w+)$`)
)

// subscriptions are requests that last for as long as their client listens.
var subscriptions = map[string]bool{"GetContainerEvents": true, "Events.Subscribe": true, "getEvents": true}

// request returns the request from outside that a goroutine serves: the method of the CRI, a
// method of another service with its name, or the handler of Docker's API; "" for none.
func (g *Goroutine) request() string {
	for i := len(g.Frames) - 1; i >= 0; i-- {
		if m := rpcHandler.FindStringSubmatch(g.Frames[i].Func); m != nil {
			return method(m[1], m[2])
		}
		if m := dockerHandler.FindStringSubmatch(g.Frames[i].Func); m != nil {
			return m[1]
		}
		if m := authorization.FindStringSubmatch(g.Frames[i].Func); m != nil {
			return m[1]
		}
	}
	return ""
}

func method(service, name string) string {
	if service == "RuntimeService" || service == "ImageService" {
		return name
	}
	return service + "." + name
}

// requestOf returns the request that a goroutine serves or was started for.
func (d *Dump) requestOf(g *Goroutine) string {
	const generations = 4
	for range generations {
		if name := g.request(); name != "" {
			return name
		}
		parent := d.goroutine(g.Creator)
		if parent == nil {
			return ""
		}
		g = parent
	}
	return ""
}

func (d *Dump) goroutine(id int) *Goroutine {
	if id == 0 {
		return nil
	}
	if d.byID == nil {
		d.byID = map[int]*Goroutine{}
		for i := range d.Goroutines {
			d.byID[d.Goroutines[i].ID] = &d.Goroutines[i]
		}
	}
	return d.byID[id]
}

// peer describes waits for another process by a function on the stack. The first group of
// the expression, where there is one, is the call.
type peer struct {
	function *regexp.Regexp
	words    string
}

// programWait matches the functions that wait for a program to end.
var programWait = regexp.MustCompile(`^os/exec\.\(\*Cmd\)\.(?:Wait|Run|Output|CombinedOutput)$|^os\.\(\*Process\)\.(?:Wait|wait|pidfdWait|blockUntilWaitable)$`)

// peers are searched in this order: an earlier table is more exact.
var peers = [][]peer{
	{
		{regexp.MustCompile(`(?:runtime/v2/task|runtime/task/v\d|shim/v1)\.\(\*\w*[cC]lient\)\.(\w+)$`), "its call to a shim"},
		{regexp.MustCompile(`docker/pkg/plugins\.\(\*Client\)\.call`), "a plugin of dockerd"},
		{regexp.MustCompile(`containerd/nri/pkg/api\.\(\*\w*[cC]lient\)\.(\w+)$`), "an NRI plugin"},
		{regexp.MustCompile(`services/snapshots/v1\.\(\*\w*[cC]lient\)\.(\w+)$`), "its call to a snapshotter"},
		{regexp.MustCompile(`containerd/(?:v2/)?api/services/\w+/v1\.\(\*\w*[cC]lient\)\.(\w+)$`), "its call to containerd"},
		{regexp.MustCompile(`containernetworking/cni/libcni\.\(\*CNIConfig\)\.(\w+)$`), "a CNI plugin"},
		{regexp.MustCompile(`containerd/go-runc\.\(\*Runc\)\.(\w+)$`), "runc"},
		{regexp.MustCompile(`containerd/fifo\.(?:OpenFifo|openFifo)`), "the other end of a FIFO"},
		{regexp.MustCompile(`(?:remotes/docker|containers/image/v5/docker|distribution/registry/client)\.`), "a registry"},
	},
	{
		{programWait, "a program that it has started"},
		{regexp.MustCompile(`^net/http\.\(\*response\)\.[wW]rite$`), "its client to read"},
		{regexp.MustCompile(`^net/http\.\(\*Client\)\.do$`), "a web server"},
		{regexp.MustCompile(`^google\.golang\.org/grpc\.\(\*ClientConn\)\.Invoke$`), "a gRPC server"},
	},
}

// peerWords describes the process that a goroutine waits for, "" for none that is known.
func (g *Goroutine) peerWords() string {
	for _, table := range peers {
		for _, f := range g.ownFrames() {
			for _, p := range table {
				if m := p.function.FindStringSubmatch(f.Func); m != nil {
					return p.words + call(m)
				}
			}
		}
	}
	return ""
}

// ownFrames are the frames above the handler of a request.
func (g *Goroutine) ownFrames() []Frame {
	handler := slices.IndexFunc(g.Frames, func(f Frame) bool { return rpcHandler.MatchString(f.Func) })
	if handler < 0 {
		return g.Frames
	}
	return g.Frames[:handler]
}

// wait describes what a goroutine waits for, apart from locks.
func (g *Goroutine) wait() string {
	switch g.State {
	case "running", "runnable":
		return "runs in " + g.function()
	}
	if w, ok := g.lockWait(); ok {
		return "waits for a lock in " + w.caller.Short()
	}
	if words := g.peerWords(); words != "" {
		return "waits for " + words
	}
	if g.State == "syscall" {
		return fmt.Sprintf("in the system call %s in %s", g.systemCall(), g.function())
	}
	return fmt.Sprintf("waits (%s) in %s", g.State, g.function())
}

func call(groups []string) string {
	if len(groups) < 2 {
		return ""
	}
	return " (" + groups[1] + ")"
}

// systemCall returns the name of the system call that a goroutine is in.
func (g *Goroutine) systemCall() string {
	name := "that is not named"
	for _, f := range g.Frames {
		for _, prefix := range []string{"syscall.", "golang.org/x/sys/unix."} {
			if rest, ok := strings.CutPrefix(f.Func, prefix); ok && !strings.Contains(strings.ToLower(rest), "syscall") {
				return strings.ToLower(rest)
			}
		}
	}
	return name
}

// libraries are packages that wait for others; where a goroutine is, is shown by its first
// function outside of them.
var libraries = []string{"sync.", "internal/", "runtime.", "runtime/", "syscall.", "os.", "io.", "bufio.", "time.", "golang.org/x/sys/unix."}

// function returns the first function that is not of a basic library.
func (g *Goroutine) function() string {
	for _, f := range g.Frames {
		basic := false
		for _, prefix := range libraries {
			basic = basic || strings.HasPrefix(f.Func, prefix)
		}
		if !basic {
			return f.Short()
		}
	}
	if len(g.Frames) > 0 {
		return g.Frames[0].Short()
	}
	return "a function that is not shown"
}

// age returns a time of whole minutes in words.
func age(d time.Duration) string {
	if d < time.Minute {
		return "less than 1 min"
	}
	if d < 2*time.Hour {
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}
