//go:build e2e

package kubelet

import (
	"encoding/json"
	"reflect"
	"testing"
)

func decoded(t *testing.T, s string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestMergePatch applies a patch as a kubelet sends it.
func TestMergePatch(t *testing.T) {
	node := decoded(t, `{"metadata":{"name":"n","labels":{"a":"1","b":"2"}},"status":{"images":["x"],
		"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True","message":"fine"}]}}`)
	patch := decoded(t, `{"metadata":{"labels":{"b":null,"c":"3"}},"status":{"images":["y"],"$setElementOrder/conditions":[{"type":"Ready"}],
		"conditions":[{"type":"Ready","status":"False","message":"broken"},{"type":"New","status":"True"}]}}`)
	want := decoded(t, `{"metadata":{"name":"n","labels":{"a":"1","c":"3"}},"status":{"images":["y"],
		"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"False","message":"broken"},{"type":"New","status":"True"}]}}`)
	if got := mergePatch(node, patch); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestMergePatchDirectives(t *testing.T) {
	node := decoded(t, `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"Hostname","address":"n"}]}}`)
	got := mergePatch(node, decoded(t, `{"status":{"addresses":[{"$patch":"delete","type":"Hostname"}]}}`))
	if want := decoded(t, `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`); !reflect.DeepEqual(got, want) {
		t.Errorf("delete: got %v, want %v", got, want)
	}
	got = mergePatch(got, decoded(t, `{"status":{"addresses":[{"$patch":"replace"},{"type":"Hostname","address":"m"}]}}`))
	if want := decoded(t, `{"status":{"addresses":[{"type":"Hostname","address":"m"}]}}`); !reflect.DeepEqual(got, want) {
		t.Errorf("replace: got %v, want %v", got, want)
	}
}
