//go:build invariants || race

package invariants

// Enabled reports whether checks are on. It is a constant, so that what it guards
// costs nothing when they are not.
const Enabled = true
