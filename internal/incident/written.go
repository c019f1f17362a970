package incident

import (
	"math"
	"reflect"
	"strings"
	"time"
)

// The bounds of what a moment takes over from the facts: a runtime may have
// filled its messages with anything.
const (
	maxString  = 2 << 10
	maxEntries = 128
)

// written returns a deep copy of v as it is written down: every time moved to the
// wall clock of now by its distance on the monotonic one, strings valid and
// bounded, lists bounded, numbers that JSON knows.
func written[T any](v *T, now time.Time) *T {
	if v == nil {
		return nil
	}
	out := new(T)
	copyWritten(reflect.ValueOf(out).Elem(), reflect.ValueOf(v).Elem(), now)
	return out
}

func copyWritten(dst, src reflect.Value, now time.Time) {
	if t, ok := src.Interface().(time.Time); ok {
		if !t.IsZero() {
			t = now.Round(0).UTC().Add(-now.Sub(t))
		}
		dst.Set(reflect.ValueOf(t))
		return
	}
	switch src.Kind() {
	case reflect.Struct:
		dst.Set(src)
		for i := range src.NumField() {
			if src.Type().Field(i).IsExported() {
				copyWritten(dst.Field(i), src.Field(i), now)
			}
		}
	case reflect.Pointer:
		if src.IsNil() {
			return
		}
		dst.Set(reflect.New(src.Type().Elem()))
		copyWritten(dst.Elem(), src.Elem(), now)
	case reflect.Slice:
		if src.IsNil() {
			return
		}
		n := min(src.Len(), maxEntries)
		dst.Set(reflect.MakeSlice(src.Type(), n, n))
		for i := range n {
			copyWritten(dst.Index(i), src.Index(i), now)
		}
	case reflect.Map:
		if src.IsNil() {
			return
		}
		dst.Set(reflect.MakeMap(src.Type()))
		for it := src.MapRange(); it.Next() && dst.Len() < maxEntries; {
			v := reflect.New(src.Type().Elem()).Elem()
			copyWritten(v, it.Value(), now)
			dst.SetMapIndex(it.Key(), v)
		}
	case reflect.String:
		dst.SetString(bounded(src.String()))
	case reflect.Float64:
		if f := src.Float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			dst.SetFloat(f)
		}
	default:
		dst.Set(src)
	}
}

func bounded(s string) string {
	if len(s) > maxString {
		s = s[:maxString] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
