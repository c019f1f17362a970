package proc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

func TestReadPriority(t *testing.T) {
	root := t.TempDir()
	line := func(nice, policy int) string {
		return fmt.Sprintf("7 (a ) b) R 1 1 1 0 -1 4194304 104 0 0 0 0 0 0 0 20 %d 1 0 100 3133440 418 18446744073709551615 "+
			"0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 %d 0 0 0 0 0 0 0 0 0 0 0\n", nice, policy)
	}
	for want, text := range map[Priority]string{
		{}: line(0, 0), {Nice: 19}: line(19, 3), {IsIdle: true}: line(0, 5), {Nice: -5}: line(-5, 2),
	} {
		evidencetest.WriteTree(t, root, map[string]string{"7/stat": text})
		got, err := ReadPriority(root, 7)
		must.Do(t, err)
		must.Equal(t, got, want, "%s", text)
	}
	evidencetest.WriteTree(t, root, map[string]string{"7/stat": strings.Replace(line(0, 0), "104 0 0 0 0 0 0 0 20", "104 0 0 0 1 20 300 4000 20", 1)})
	got, err := CPUTime(root, 7)
	must.Do(t, err)
	must.Equal(t, got, 43210*time.Millisecond, "the time on the CPU")
	evidencetest.WriteTree(t, root, map[string]string{"7/stat": "7 (a) R 1\n"})
	_, err = CPUTime(root, 7)
	if err == nil {
		t.Error("a line that is too short has a time")
	}
	_, err = ReadPriority(root, 7)
	if err == nil {
		t.Error("a line that is too short is no error")
	}
}
