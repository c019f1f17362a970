package sockdiag

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// unixLineMax is far more than a row can have: 54 bytes and a path of at
	// most 108. What is longer is no row and is passed over.
	unixLineMax = 512
	// unixEndsMax limits the inodes kept of one table; more are only counted.
	unixEndsMax = 1 << 16
	// acceptCon is __SO_ACCEPTCON, the flag of a listener.
	acceptCon = 0x10000
	// unixConnected is SS_CONNECTED; a connection that waits to be accepted has
	// no socket yet, state SS_CONNECTING and inode 0.
	unixConnected = 3
)

// Table is what /proc/net/unix says about one socket path.
//
// It is a hint. Anybody may bind a socket to a name with a line break in it and
// so write a row of his own; sock_diag tells the names apart.
type Table struct {
	// rows is the size of the whole table.
	Rows int
	// listeners and ends are the inodes of the stream sockets bound to the path
	// that listen, and of the server's ends of accepted connections.
	Listeners, Ends []uint32
	// accepted is the number of accepted connections, pending that of those
	// that wait to be accepted.
	Accepted, Pending int
}

// ReadTable looks for sockets bound to one of the names, spelled exactly so,
// in the network namespace of this process.
func ReadTable(ctx context.Context, procfs string, names []string) (Table, error) {
	f, err := os.Open(filepath.Join(procfs, "net/unix"))
	if err != nil {
		return Table{}, fmt.Errorf("look for the listener: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	return ScanTable(ctx, f, names)
}

// ScanTable reads a table row by row and keeps only what it looks for.
func ScanTable(ctx context.Context, r io.Reader, names []string) (Table, error) {
	var t Table
	br := bufio.NewReaderSize(r, 16<<10)
	for {
		line, err := readTableLine(br)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return Table{}, fmt.Errorf("read the table of unix sockets: %w", err)
		}
		t.Rows++
		if t.Rows%1024 == 0 && ctx.Err() != nil {
			return Table{}, fmt.Errorf("read the table of unix sockets: %w after %d rows", ctx.Err(), t.Rows)
		}
		t.add(line, names)
	}
}

// readTableLine returns the next line without its end, empty when it is too long.
func readTableLine(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	long := false
	for errors.Is(err, bufio.ErrBufferFull) {
		long = true
		line, err = br.ReadSlice('\n')
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, err
	}
	if long || len(line) > unixLineMax {
		return nil, nil
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}

// add takes a row into account when it is about one of the names. A row is
//
//	Num: RefCount Protocol Flags Type St Inode Path
//
// in hexadecimal but for the inode, which is padded with spaces.
func (t *Table) add(line []byte, names []string) {
	var fields [7][]byte
	for i := range fields {
		line = bytes.TrimLeft(line, " ")
		n := bytes.IndexByte(line, ' ')
		if n < 0 {
			return // no path
		}
		fields[i], line = line[:n], line[n:]
	}
	path := line[1:] // one space; any more are the path's own
	if !slices.ContainsFunc(names, func(n string) bool { return string(path) == n }) {
		return
	}
	flags, err1 := strconv.ParseUint(string(fields[3]), 16, 32)
	kind, err2 := strconv.ParseUint(string(fields[4]), 16, 16)
	state, err3 := strconv.ParseUint(string(fields[5]), 16, 8)
	inode, err4 := strconv.ParseUint(string(fields[6]), 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || kind != unix.SOCK_STREAM || inode > math.MaxUint32 {
		return
	}
	switch {
	case inode == 0:
		t.Pending++
	case flags&acceptCon != 0:
		t.Listeners = appendBounded(t.Listeners, uint32(inode))
	case state == unixConnected:
		t.Accepted++
		t.Ends = appendBounded(t.Ends, uint32(inode))
	}
}

func appendBounded(s []uint32, v uint32) []uint32 {
	if len(s) >= unixEndsMax {
		return s
	}
	return append(s, v)
}
