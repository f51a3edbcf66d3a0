package config

import (
	"reflect"
	"strings"
	"sync"
)

// node is the schema of one key, from the structs. Structs have children by name; maps
// have one child for all names; lists of structs have the child of their elements.
type node struct {
	key      string // dotted, with NAME for the names of a map
	kind     nodeKind
	typ      reflect.Type
	field    string           // "Config.Transports", where its comment stands
	children map[string]*node // nodeStruct
	names    []string         // of the children, in order of declaration
	elem     *node            // nodeMap, nodeList
}

type nodeKind uint8

const (
	nodeLeaf   nodeKind = iota // a value
	nodeStruct                 // fixed names
	nodeMap                    // free names, each with the elem's shape
	nodeList                   // a list of structs
	nodeOpaque                 // free names and values: a transport's options
)

var schema = sync.OnceValue(func() *node { return describe("", "", reflect.TypeFor[Config]()) })

func describe(key, field string, t reflect.Type) *node {
	n := &node{key: key, typ: t, field: field}
	switch {
	case t.Kind() == reflect.Struct:
		n.kind = nodeStruct
		n.children = make(map[string]*node, t.NumField())
		for i := range t.NumField() {
			f := t.Field(i)
			name := f.Tag.Get("config")
			n.children[name] = describe(join(key, name), t.Name()+"."+f.Name, f.Type)
			n.names = append(n.names, name)
		}
	case t == reflect.TypeFor[map[string]any]():
		n.kind = nodeOpaque
	case t.Kind() == reflect.Map:
		n.kind = nodeMap
		n.elem = describe(join(key, "NAME"), field, t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		n.kind = nodeList
		n.elem = describe(key, field, t.Elem())
	}
	return n
}

// leaves calls f for every leaf below n in order of declaration; opaque sections
// count as one.
func (n *node) leaves(f func(*node)) {
	switch n.kind {
	case nodeStruct:
		for _, name := range n.names {
			n.children[name].leaves(f)
		}
	case nodeMap, nodeList:
		n.elem.leaves(f)
	default:
		f(n)
	}
}

// find returns the node of a path, or nil. Paths below an opaque section, or that
// index a list, end at that section.
func (n *node) find(path []string) *node {
	for _, name := range path {
		switch n.kind {
		case nodeStruct:
			if n = n.children[name]; n == nil {
				return nil
			}
		case nodeMap:
			n = n.elem
		case nodeOpaque, nodeList:
			return n
		default:
			return nil
		}
	}
	return n
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// secretWords mark keys whose values are never printed. Transports own their
// schema, so their options can be recognized by name only.
var secretWords = []string{"secret", "token", "password", "passphrase", "private_key"}

// isSecret reports whether the value of a key must be hidden. A path to a file
// with a secret is not itself one.
func isSecret(key string) bool {
	last := strings.ToLower(key[strings.LastIndexByte(key, '.')+1:])
	if strings.HasSuffix(last, "_file") || strings.HasSuffix(last, "_path") {
		return false
	}
	for _, w := range secretWords {
		if strings.Contains(last, w) {
			return true
		}
	}
	return false
}
