package incident

import (
	"os"
	"testing"
)

// FuzzDecode: any file is an incident or an error, its head and its whole agree, and it
// can be judged again.
func FuzzDecode(f *testing.F) {
	b, err := os.ReadFile("../../docs/api/incident.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema_version":2,"id":"20261121T030245Z-ffffff","timeline":[{"snapshot":{"at":"2026-11-21T03:02:45Z","facts":{},"previous":{"reason":"X","reasons":[{"id":"X"}]}}}]}`))
	f.Add([]byte(`{"schema_version":2,"id":"20261121T030245Z-ffffff","timeline":[{"snapshot":{"at":"2026-11-21T03:02:45Z","facts":{"relist":{"failures":1}},"previous":{"reason":"RelistSlow"}}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		one, err := Decode(b)
		if err != nil {
			return
		}
		Replay(one)
	})
}
