package engine

import (
	"reflect"
	"testing"
)

// Same sees every field of a query, but those that do not change between calls of a Comm about one collective.
func TestSame(t *testing.T) {
	constant := map[string]bool{"Collective": true, "Ranks": true, "Device": true}
	var check func(q *Query, in reflect.Value)
	check = func(q *Query, in reflect.Value) {
		for i := range in.NumField() {
			f, name := in.Field(i), in.Type().Field(i).Name
			switch {
			case f.Kind() == reflect.Struct:
				check(q, f)
				continue
			case constant[name]:
				continue
			case f.Kind() == reflect.Bool:
				f.SetBool(true)
			case f.CanUint():
				f.SetUint(1)
			case f.CanInt():
				f.SetInt(1)
			default:
				t.Fatalf("%s: a field of %v, which this test does not know", name, f.Type())
			}
			if q.Same(&Query{}) {
				t.Errorf("a query with another %s is taken for the same", name)
			}
			f.SetZero()
			if !q.Same(&Query{}) {
				t.Errorf("behind %s: equal queries are taken for different ones", name)
			}
		}
	}
	var q Query
	check(&q, reflect.ValueOf(&q).Elem())
}
