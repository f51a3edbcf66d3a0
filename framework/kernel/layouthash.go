package kernel

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// included has the header that identifies a layout, and those that C in other packages
// includes. A build of Go does not notice that a header in another package has changed,
// but that a package it imports has, and what is embedded is part of that.
//
//go:embed include/mscclpp/layout.h include/mscclpp/trigger.h
var included embed.FS

// LayoutMarker is on a line of its own in a comment of each header that defines what a
// host passes to kernels: arguments, and memory that both use.
const LayoutMarker = "mscclpp:layout"

var (
	markerLine = onfirstuse.Regexp(`(?m)^[ \t]*//[ \t]*` + LayoutMarker + `[ \t]*$`)
	comments   = onfirstuse.Regexp(`(?s)//[^\n]*|/\*.*?\*/`)
)

// HasLayout reports whether a header has LayoutMarker, and so defines arguments of
// kernels.
func HasLayout(header string) bool { return markerLine().MatchString(header) }

// Layout identifies how the arguments of kernels are laid out in memory. It is a hash
// of mscclpp/layout.h as this program was built with, and of the given headers, which
// have LayoutMarker. The order of the headers does not matter; neither do comments and
// white space. Constants and names do: an image with another layout has to be rebuilt.
func Layout(headers ...string) string {
	handles, err := included.ReadFile("include/mscclpp/layout.h")
	if err != nil {
		panic(err) // it is embedded
	}
	return LayoutOf(string(handles), headers...)
}

// LayoutOf is like Layout, but for another text of mscclpp/layout.h: that of the folder
// from which an image is built.
func LayoutOf(handles string, headers ...string) string {
	texts := []string{plain(handles)}
	for _, h := range headers {
		texts = append(texts, plain(h))
	}
	slices.Sort(texts[1:])
	texts = append(texts[:1], slices.Compact(texts[1:])...) // one file may be reached by two names
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// plain is what of a header the compiler sees, one space between words.
func plain(header string) string {
	return strings.Join(strings.Fields(comments().ReplaceAllString(header, " ")), " ")
}
