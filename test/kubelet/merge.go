//go:build e2e

package kubelet

import "strings"

// mergeKeys are the lists of a Node that a strategic merge patch merges item by
// item, with the field that identifies an item. Other lists are replaced.
var mergeKeys = map[string]string{
	"conditions": "type",
	"addresses":  "type",
	"taints":     "key",
}

// mergePatch applies a strategic merge patch, as a kubelet sends it for its node,
// to a decoded object and returns the result. The object may be changed.
func mergePatch(object, patch map[string]any) map[string]any {
	if patch["$patch"] == "replace" {
		delete(patch, "$patch")
		return patch
	}
	if object == nil {
		object = map[string]any{}
	}
	for key, value := range patch {
		if strings.HasPrefix(key, "$") { // a directive, not a field
			continue
		}
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			old, _ := object[key].(map[string]any)
			object[key] = mergePatch(old, value)
		case []any:
			old, _ := object[key].([]any)
			if id := mergeKeys[key]; id != "" {
				object[key] = mergeList(old, value, id)
			} else {
				object[key] = value
			}
		default:
			object[key] = value
		}
	}
	return object
}

// mergeList merges a patch's items into a list by the field that identifies them.
func mergeList(list, patch []any, id string) []any {
	for _, p := range patch {
		item, ok := p.(map[string]any)
		if !ok {
			continue
		}
		i := indexOf(list, id, item[id])
		switch {
		case item["$patch"] == "replace":
			list = nil
		case item["$patch"] == "delete" && i >= 0:
			list = append(list[:i], list[i+1:]...)
		case item["$patch"] == "delete":
		case i >= 0:
			old, _ := list[i].(map[string]any)
			list[i] = mergePatch(old, item)
		default:
			list = append(list, item)
		}
	}
	return list
}

func indexOf(list []any, id string, value any) int {
	for i, v := range list {
		if m, ok := v.(map[string]any); ok && m[id] == value {
			return i
		}
	}
	return -1
}
