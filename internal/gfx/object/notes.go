package object

import (
	"encoding/binary"
	"fmt"
)

// kernels reads the kernels off the note.
func kernels(note []byte) ([]Kernel, error) {
	root, err := decode(note)
	if err != nil {
		return nil, err
	}
	top, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("code object: notes: %T: expected a map", root)
	}
	list, ok := top["amdhsa.kernels"].([]any)
	if !ok {
		return nil, fmt.Errorf("code object: notes: no list amdhsa.kernels")
	}
	var out []Kernel
	for _, x := range list {
		n := fields{}
		if n.of, ok = x.(map[string]any); !ok {
			return nil, fmt.Errorf("code object: notes: a kernel is a %T: expected a map", x)
		}
		k := Kernel{
			Name: n.text(".name"), descriptor: n.text(".symbol"), ArgsBytes: n.number(".kernarg_segment_size"),
			Group: n.number(".group_segment_fixed_size"), Private: n.number(".private_segment_fixed_size"), Dynamic: n.yes(".uses_dynamic_stack"),
			Threads: n.number(".max_flat_workgroup_size"), SGPRs: n.number(".sgpr_count"), VGPRs: n.number(".vgpr_count"), AGPRs: n.number(".agpr_count"),
			SGPRSpills: n.number(".sgpr_spill_count"), VGPRSpills: n.number(".vgpr_spill_count"), Wave: n.number(".wavefront_size"),
		}
		args, _ := n.of[".args"].([]any) // a kernel may have none
		for _, x := range args {
			a := fields{}
			if a.of, ok = x.(map[string]any); !ok {
				return nil, fmt.Errorf("code object: notes: an argument is a %T: expected a map", x)
			}
			k.Args = append(k.Args, Arg{a.number(".offset"), a.number(".size"), a.text(".value_kind")})
			if a.missing != "" {
				return nil, fmt.Errorf("code object: notes: argument %d of %s: no %s", len(k.Args)-1, k.Name, a.missing)
			}
		}
		if n.missing != "" {
			return nil, fmt.Errorf("code object: notes: kernel %q: no %s", k.Name, n.missing)
		}
		out = append(out, k)
	}
	return out, nil
}

// fields reads a map, and remembers what it lacks.
type fields struct {
	of      map[string]any
	missing string
}

func (f *fields) number(name string) uint64 {
	n, ok := f.of[name].(uint64)
	if !ok {
		f.missing = name
	}
	return n
}

func (f *fields) text(name string) string {
	s, ok := f.of[name].(string)
	if !ok {
		f.missing = name
	}
	return s
}

func (f *fields) yes(name string) bool {
	b, ok := f.of[name].(bool)
	if !ok {
		f.missing = name
	}
	return b
}

// decode reads MessagePack, of which notes use maps with texts as keys, lists, texts, booleans and numbers that are not
// negative. Anything else is an error, and so is what follows the value.
func decode(data []byte) (any, error) {
	p := packed{data: data}
	v := p.value(0)
	if p.err == nil && p.at != len(data) {
		p.fail("%d bytes behind the value", len(data)-p.at)
	}
	return v, p.err
}

type packed struct {
	data []byte
	at   int
	err  error
}

func (p *packed) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("code object: notes: byte %d: %s", p.at, fmt.Sprintf(format, args...))
	}
}

func (p *packed) take(n int) []byte {
	if p.err != nil || n > len(p.data)-p.at {
		p.fail("%d bytes expected, %d are left", n, len(p.data)-p.at)
		return make([]byte, min(n, 8))
	}
	p.at += n
	return p.data[p.at-n : p.at]
}

// sized reads a number of 1, 2, 4 or 8 bytes, the more significant first.
func (p *packed) sized(bytes int) uint64 {
	var b [8]byte
	copy(b[8-bytes:], p.take(bytes))
	return binary.BigEndian.Uint64(b[:])
}

// deepest bounds maps within maps.
const deepest = 8

func (p *packed) value(depth int) any {
	if depth > deepest {
		p.fail("more than %d levels", deepest)
		return nil
	}
	switch c := p.take(1)[0]; {
	case c < 0x80:
		return uint64(c)
	case c < 0x90:
		return p.table(int(c&0xf), depth)
	case c < 0xa0:
		return p.list(int(c&0xf), depth)
	case c < 0xc0:
		return string(p.take(int(c & 0x1f)))
	case c == 0xc2, c == 0xc3:
		return c == 0xc3
	case c >= 0xcc && c <= 0xcf:
		return p.sized(1 << (c - 0xcc))
	case c >= 0xd9 && c <= 0xda:
		return string(p.take(int(p.sized(1 << (c - 0xd9)))))
	case c == 0xdc:
		return p.list(int(p.sized(2)), depth)
	case c == 0xde:
		return p.table(int(p.sized(2)), depth)
	default:
		p.fail("type %#x", c)
		return nil
	}
}

func (p *packed) list(n, depth int) any {
	list := []any{}
	for range n {
		if p.err != nil {
			return nil
		}
		list = append(list, p.value(depth+1))
	}
	return list
}

func (p *packed) table(n, depth int) any {
	m := map[string]any{}
	for range n {
		key, ok := p.value(depth + 1).(string)
		if p.err != nil {
			return nil
		}
		if _, again := m[key]; !ok || again {
			p.fail("key %q: expected a text that has not been there", key)
			return nil
		}
		m[key] = p.value(depth + 1)
	}
	return m
}
