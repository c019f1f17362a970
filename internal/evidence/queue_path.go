package evidence

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

// lookFor is how long the file system is waited for. The path is on a tmpfs
// nearly always; where it is not, a dead disk must not take the queue's length
// with it.
const lookFor = 50 * time.Millisecond

// socketPlace is what the file system says of the socket's path.
type socketPlace struct {
	path string
	// names are the spellings under which a runtime may have bound it: as
	// configured, and with symbolic links resolved (/var/run is /run).
	names []string
	// file is what stat(2) finds there, zero when exists is false: nothing is
	// there, or it cannot be told.
	file   sockdiag.FileID
	exists bool
}

func (p socketPlace) equal(o socketPlace) bool {
	return p.path == o.path && p.exists == o.exists && p.file == o.file && slices.Equal(p.names, o.names)
}

// pathLooker looks at a path, in a goroutine that it leaves behind when the file
// system does not answer; never more than one. Not for several goroutines at
// once.
type pathLooker struct {
	look func(path string, last socketPlace) socketPlace // lookAt, but for tests
	back chan socketPlace
	last socketPlace
}

// at returns what is at path: what it was last time, or nothing but the path,
// when the file system does not answer.
func (l *pathLooker) at(ctx context.Context, path string) socketPlace {
	if l.back == nil {
		l.back = make(chan socketPlace, 1)
		go func(back chan<- socketPlace, last socketPlace) { back <- l.look(path, last) }(l.back, l.last)
		runtime.Gosched() // most answer at once; Go wakes up for a timer that was stopped, too
	}
	var late <-chan time.Time
	if len(l.back) == 0 {
		timer := time.NewTimer(lookFor)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case l.last = <-l.back:
		l.back = nil
	case <-late:
	case <-ctx.Done():
	}
	if l.last.path != path {
		return socketPlace{path: path, names: []string{path}}
	}
	return l.last
}

// lookAt asks the file system about path. The file that was there last time has the
// names that it had.
func lookAt(path string, last socketPlace) socketPlace {
	p := socketPlace{path: path, names: []string{path}}
	if info, err := os.Stat(path); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			p.file, p.exists = sockdiag.FileID{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: uint32(st.Ino)}, true
		}
	}
	if p.exists && last.exists && p.path == last.path && p.file == last.file {
		return last
	}
	// Of the directory first: a resolved name is wanted for a file that is gone,
	// too.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		p.addName(filepath.Join(dir, filepath.Base(path)))
	}
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		p.addName(whole)
	}
	return p
}

func (p *socketPlace) addName(name string) {
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
}
