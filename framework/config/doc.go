// Package config composes the configuration of a job from its layers:
//
//	defaults < system file < user file < job file < MSCCLPP_* environment < flags
//
// A later layer wins, key by key; lists are replaced as a whole. Files are YAML or
// TOML. Every layer is checked on its own before it is merged, so that an error
// names the file, the line, the key, and the key that was probably meant. Only the
// environment is lenient about names it does not know, because clusters inject
// them: those become warnings.
//
// The comments on the fields of [Config] are the reference: docs/config.md and
// `mscclpp-run config --docs` are made from them. The options of a transport are
// the exception. They are opaque here: each transport owns their schema and checks
// them when it starts, so that a vendor's options need no change in this package.
package config
