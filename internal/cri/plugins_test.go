package cri

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// pluginMessage encodes a plugin as containerd does.
func pluginMessage(p Plugin) []byte {
	field := func(b []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	b := field(field(nil, 1, p.Type), 2, p.ID)
	b = field(b, 3, "io.containerd.service.v1") // requires
	if p.Err != "" {
		status := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
		b = field(b, 7, string(field(status, 2, p.Err)))
	}
	return field(nil, 1, string(b))
}

// TestPlugins: the error of the CRI plugin is found among containerd's plugins, that of a
// part before that of the whole.
func TestPlugins(t *testing.T) {
	const whole, part = "io.containerd.grpc.v1", "io.containerd.cri.v1"
	for name, tt := range map[string]struct {
		plugins []Plugin
		want    facts.CRIPlugin
	}{
		"loaded":        {plugins: []Plugin{{Type: whole, ID: "cri"}}, want: facts.CRIPlugin{}},
		"disabled":      {plugins: []Plugin{{Type: whole, ID: "leases"}}, want: facts.CRIPlugin{Absent: true}},
		"disabled, 2.4": {plugins: []Plugin{{Type: part, ID: "images"}, {Type: part, ID: "runtime"}}, want: facts.CRIPlugin{Absent: true}},
		"1.6":           {plugins: []Plugin{{Type: whole, ID: "leases", Err: "x"}, {Type: whole, ID: "cri", Err: "no nydus"}}, want: facts.CRIPlugin{Error: "no nydus"}},
		"2.4":           {plugins: []Plugin{{Type: whole, ID: "cri", Err: "no images"}, {Type: part, ID: "images", Err: "no nydus"}}, want: facts.CRIPlugin{Error: "no nydus"}},
	} {
		var message []byte
		for _, p := range tt.plugins {
			message = append(message, pluginMessage(p)...)
		}
		plugins, err := parsePlugins(message)
		if err != nil || len(plugins) != len(tt.plugins) {
			t.Fatalf("%s: %v, %v", name, plugins, err)
		}
		check.Equal(t, *PluginState(plugins), tt.want, "%s", name)
	}
}

// FuzzPlugins: no answer makes the decoder fail, and what it returns is bounded.
func FuzzPlugins(f *testing.F) {
	f.Add(pluginMessage(Plugin{Type: "a", ID: "cri", Err: "x"}))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		plugins, _ := parsePlugins(b)
		if len(plugins) > maxPlugins {
			t.Errorf("%d plugins", len(plugins))
		}
		for _, p := range plugins {
			if len(p.Err) > maxMessage || len(p.ID) > maxName || len(p.Type) > maxName {
				t.Errorf("%+v", p)
			}
		}
	})
}
