// Runs functions of texts without a file: one that names its source in a comment, as webpack's eval
// source maps do, one of new Function, as template engines make it, and one that eval defines inside of
// another eval.
const m = eval('(function(module){ module.work = function work(n){ let x=0;\nfor(let i=0;i<n;i++) x=(x*31+i)|0;\nreturn x; } })\n//# sourceURL=webpack:///./src/hot.ts');
const mod = {};
m(mod);
function compile(body) {
	return new Function('n', body);
}
const template = compile('let s=0;\nfor(let i=0;i<n;i++) s+=i%7;\nreturn s;');
const nested = eval('eval("(function inner(n){ let s=1; for(let i=0;i<n;i++) s=(s*7+i)|0; return s; })")');
console.log('ready', process.pid);
for (;;) {
	mod.work(3e6);
	template(3e6);
	nested(3e6);
}
