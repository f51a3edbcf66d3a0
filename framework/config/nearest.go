package config

import (
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// nearestKey returns the known key that a misspelled one probably means, or "". Names
// beside the wrong one are tried first; then the whole tree is, so that a right
// name in a wrong section is found as well.
func nearestKey(root, parent *node, prefix, wrong string) string {
	if name := suggest.Name(wrong, parent.names); name != "" {
		return join(prefix, name)
	}
	var names, keys []string
	root.leaves(func(n *node) {
		names, keys = append(names, n.key[strings.LastIndexByte(n.key, '.')+1:]), append(keys, n.key)
	})
	if at := slices.Index(names, suggest.Name(wrong, names)); at >= 0 {
		return keys[at]
	}
	return ""
}
