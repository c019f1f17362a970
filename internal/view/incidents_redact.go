package view

import (
	"reflect"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// WithoutNames returns a copy of an incident that names no pod or container:
// not as a field, nor in a text. The entries of the pods stay, so that they can
// be counted. Messages of errors, which could hold a name or an id, are empty.
func WithoutNames(one *incident.Incident) *incident.Incident {
	c := nameless{words: []string{"ID", "Reason", "RunnerUp", "Symptom", "Operation", "Code", "PlegdVersion", "BootID", "Comm", "CRIVersion"}}
	for i := range one.Timeline {
		if f := one.Timeline[i].Facts; f != nil {
			c.names = append(c.names, newRedactor(f, false).names...)
		}
	}
	for i := range one.Relists {
		c.names = append(c.names, podNames(one.Relists[i].Slowest)...)
	}
	c.names = distinct(c.names)
	out := new(incident.Incident)
	c.copy(reflect.ValueOf(out).Elem(), reflect.ValueOf(one).Elem())
	return out
}

func distinct(names []string) (out []string) {
	seen := map[string]bool{}
	for _, n := range names {
		if n != "" && !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// nameless copies plain values and takes the names out.
type nameless struct {
	redactor
	// words are the fields that hold words of plegd's: a pod may be called like
	// a reason.
	words []string
}

func (c nameless) copy(dst, src reflect.Value) {
	dst.Set(src)
	switch one := dst.Addr().Interface().(type) {
	case *time.Time:
		return
	case *health.PodInspection:
		one.UID, one.Namespace, one.Name = "", "", ""
		src = reflect.ValueOf(*one)
	case *health.CallError:
		one.Message = ""
		src = reflect.ValueOf(*one)
	case *health.Link:
		*one = one.WithoutNames()
		src = reflect.ValueOf(*one)
	case *health.Child:
		one.Sandbox = ""
		src = reflect.ValueOf(*one)
	}
	switch src.Kind() {
	case reflect.Struct:
		for i := range src.NumField() {
			if f := src.Type().Field(i); f.IsExported() && !slices.Contains(c.words, f.Name) {
				c.copy(dst.Field(i), src.Field(i))
			}
		}
	case reflect.Pointer:
		if !src.IsNil() {
			dst.Set(reflect.New(src.Type().Elem()))
			c.copy(dst.Elem(), src.Elem())
		}
	case reflect.Slice:
		if !src.IsNil() {
			dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
			for i := range src.Len() {
				c.copy(dst.Index(i), src.Index(i))
			}
		}
	case reflect.Map:
		if !src.IsNil() {
			dst.Set(reflect.MakeMap(src.Type()))
			for it := src.MapRange(); it.Next(); {
				v := reflect.New(src.Type().Elem()).Elem()
				c.copy(v, it.Value())
				dst.SetMapIndex(it.Key(), v)
			}
		}
	case reflect.String:
		if src.Type() == reflect.TypeFor[string]() { // a State, a Phase and the like are words of plegd's
			dst.SetString(c.text(src.String()))
		}
	}
}
