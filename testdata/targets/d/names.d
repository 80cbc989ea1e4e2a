// A program with a function of each kind that D's names can express: it prints
// their results, which are not used.
module names.kinds;

import std.algorithm, std.array, std.conv, std.range, std.stdio;

struct Pair(T)
{
    T x;
    T opBinary(string op)(T r) if (op == "+") { return x + r; }
    static int many(int[] a, string[int] m, const(char)* s, immutable(int)[3] z) { return cast(int) (a.length + m.length + z[0]); }
    this(this) { touched++; }
    static int touched;
}

class Base
{
    int v;
    this(int q) { v = q; }
    ~this() {}
    void kinds(ref int a, out int b, lazy int c, scope int delegate(int) pure nothrow @safe d, int function(char, ...) e) { b = a + v; }
    @property int bar() const { return v; }
    static class Inner { shared int w; void z(shared(int)* p) shared {} }
}

interface Able { void able(); }

class Derived : Base, Able
{
    this() { super(1); }
    override void able() {}
}

int alias_(alias f, T...)(T t) { return f(t[0]); }
auto values(int n, string s, double d, bool b, char c, int[] l)() { return n + cast(int) l.length; }
void typesafe(int[] a...) {}
extern (C) void cfunction(int) {}
extern (C++) int cppfunction(int a, char* b) { return a; }

void main()
{
    int a = 3;
    auto d = (int x) => x + a;
    writeln(alias_!(x => x * 2)(a), alias_!d(4), Pair!int(3).opBinary!"+"(2), values!(-3, "hé\"x\n", 1.5, true, 'q', [1, 2])());
    auto r = iota(10).map!(i => i * 2).filter!(i => i > a).array.sort!((p, q) => p > q);
    writeln(r);
    auto k = new Derived;
    int o;
    k.kinds(a, o, a, null, null);
    struct Local { int q; int get() { return q + a; } }
    writeln(Local(2).get, k.bar, to!string(45), Pair!(Pair!(const(char)[])).many([1], [1: "x"], "s", [1, 2, 3]));
    auto copy = Pair!long(1);
    auto other = copy;
    void nested(int z) { writeln(z + a, other.x); }
    nested(4);
    typesafe(4);
    cfunction(1);
    cppfunction(2, null);
}
