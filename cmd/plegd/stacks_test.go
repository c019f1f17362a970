package main

import (
	"bufio"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
)

// TestStacksFile: a dump in a file is analysed, as text and as JSON.
func TestStacksFile(t *testing.T) {
	file := filepath.Join("..", "..", "internal", "stacks", "testdata", "containerd-1.6-list-hangs.txt")
	code, text, errs := plegd(t, "stacks", "--file", file)
	if code != 0 || !strings.Contains(text, "held by goroutine 346: UpdateContainerResources") {
		t.Errorf("exit %d, %s%s", code, text, errs)
	}
	code, out, errs := plegd(t, "stacks", "--file", file, "-o", "json")
	var doc stacksDocument
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 || len(doc.Dumps) != 1 || doc.Dumps[0].Report.Locks[0].Holder.Goroutine != 346 {
		t.Errorf("exit %d, %v, %s%s", code, err, out, errs)
	}
}

// TestStacksAsks: only a yes lets a runtime get a signal, one for each process.
func TestStacksAsks(t *testing.T) {
	for answer, want := range map[string]bool{"": false, "n\n": false, "\n": false, "yes please\n": false, "y\n": true, " YES\n": true, "y": true} {
		var question strings.Builder
		check.Equal(t, confirmed("crio", 812, bufio.NewReader(strings.NewReader(answer)), &question), want, "%q", answer)
		check.Contains(t, question.String(), "SIGUSR1 to crio, pid 812", "question")
	}
	input := bufio.NewReader(strings.NewReader("y\nn\n"))
	if !confirmed("dockerd", 1, input, io.Discard) || confirmed("containerd", 2, input, io.Discard) {
		t.Error("an answer counts for another process")
	}
}
