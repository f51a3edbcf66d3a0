// Package lint holds the rules of this tree that no general tool knows, as tests:
// which package may import which, how long a file may be, what a test may not do,
// which words do not belong here. Each rule is a function over files, so that the
// tests can show that it finds what it is there to find.
package lint
