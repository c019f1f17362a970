package incident

import (
	"bytes"
	"slices"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

// encode makes the content of an incident's file, leaving moments out of the
// middle until it fits.
func encode(doc *Incident, moments []*moment, l *Limits) ([]byte, error) {
	texts := make([][]byte, len(moments))
	total := 0
	for i, m := range moments {
		text, err := m.encode()
		if err != nil {
			return nil, err
		}
		texts[i] = text
		total += len(text) + 1
	}
	doc.Timeline = []Moment{} // the last field: what is in it is put in below
	head, err := marshal(doc)
	if err != nil {
		return nil, err
	}
	for len(texts) > 2 && len(head)+total > l.FileBytes {
		middle := min(l.KeepFirst, len(texts)/2)
		total -= len(texts[middle]) + 1
		texts = slices.Concat(texts[:middle], texts[middle+1:])
		doc.TimelineDropped++
	}
	if head, err = marshal(doc); err != nil {
		return nil, err
	}
	const end = "]}"
	out := append(bytes.TrimSuffix(head, []byte(end)), bytes.Join(texts, []byte(","))...)
	return append(out, end+"\n"...), nil
}

// marshal encodes v so that whoever reads the file in a terminal is safe from
// what the runtime put into its names and messages.
func marshal(v any) ([]byte, error) {
	b, err := health.Marshal(v)
	return plain.JSON(b), err
}
