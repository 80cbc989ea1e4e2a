// Package policy holds, as tests, what the project's code keeps to: which
// package may import which, where unsafe and ptrace may stand, how long a file
// may be. It has no code of its own and nothing imports it. To change a rule,
// change its table here first, with the reason.
package policy
