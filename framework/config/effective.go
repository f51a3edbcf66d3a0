package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Origin says where a value came from.
type Origin struct {
	Layer  string // "default", "program", "system", "user", "job", "environment" or "flag"
	Source string // path of the file, name of the variable or flag, or "FLAG (VARIABLE)" in a rank; "" for defaults
	Line   int    // within a file; 0 unknown
}

// String returns "/etc/mscclpp/config.yaml:3", "MSCCLPP_COMM__SCRATCH" or "default".
func (o Origin) String() string {
	switch {
	case o.Source == "":
		return o.Layer
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.Source, o.Line)
	}
	return o.Source
}

// Flat reports whether the value came from a variable of MSCCL++, under its own name. One
// of these may set options of several transports, whether they are used or not.
func (o Origin) Flat() bool {
	_, known := flatNames[o.Source]
	return known && o.Layer == "environment"
}

// Setting is one key set by a flag.
type Setting struct {
	Key   string // dotted
	Value string
	Flag  string // as the user wrote it: "--log-level"
}

// Effective is a configuration together with where it came from.
type Effective struct {
	Config
	Warnings []string // about variables in the environment that have no effect
	Warned   []string // their names, and those of EnvWarned that are still set
	origins  map[string]Origin
}

// Origin returns where the value of a dotted key came from.
func (e *Effective) Origin(key string) Origin {
	if o, ok := e.origins[key]; ok {
		return o
	}
	return Origin{Layer: "default"}
}

// Value returns the value of a dotted key as a variable would have it, and false for sections and keys that there are not.
func (e *Effective) Value(key string) (text string, ok bool) {
	var at any = treeOf(reflect.ValueOf(e.Config))
	for name := range strings.SplitSeq(key, ".") {
		section, in := at.(map[string]any)
		if at, ok = section[name]; !in || !ok {
			return "", false
		}
	}
	if _, section := at.(map[string]any); section {
		return "", false
	}
	if list, ok := at.([]string); ok {
		return strings.Join(list, ","), true
	}
	return fmt.Sprint(at), true
}
