package config

import "strings"

// nearest returns the known key that a misspelled one probably means, or "". Names
// beside the wrong one are tried first; then the whole tree is, so that a right
// name in a wrong section is found as well.
func nearest(root, parent *node, prefix, wrong string) string {
	best, bestDist := "", 1+max(1, len(wrong)/3)
	for _, name := range parent.names {
		if d := distance(wrong, name); d < bestDist {
			best, bestDist = join(prefix, name), d
		}
	}
	if best != "" {
		return best
	}
	root.leaves(func(n *node) {
		last := n.key[strings.LastIndexByte(n.key, '.')+1:]
		if d := distance(wrong, last); d < bestDist {
			best, bestDist = n.key, d
		}
	})
	return best
}

// closest returns the word of a list nearest to a wrong one, or "".
func closest(words []string, wrong string) string {
	best, bestDist := "", 1+max(1, len(wrong)/3)
	for _, w := range words {
		if d := distance(wrong, w); d < bestDist {
			best, bestDist = w, d
		}
	}
	return best
}

// distance counts the edits (insert, delete, replace, swap of neighbors) between
// two names; case and the choice of hyphen or underscore do not count.
func distance(a, b string) int {
	fold := strings.NewReplacer("-", "_")
	a, b = fold.Replace(strings.ToLower(a)), fold.Replace(strings.ToLower(b))
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
